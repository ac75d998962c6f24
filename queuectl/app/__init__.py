"""The only modules that know concrete classes: what each command is made of.

One module a command, so that each loads its own parts alone: a controller starts without REST, REST without
Kubernetes, and neither needs what only the sandbox does.
"""
