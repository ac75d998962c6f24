"""What each command is made of. Only these modules put concrete classes together.

There is one module per command, so that each loads only its own parts: a controller starts without REST, REST
without Kubernetes, and both without the parts of the sandbox.
"""
