"""python -m queuectl"""

from queuectl.cli import main

main(prog_name="queuectl")
