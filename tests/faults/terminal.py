"""Runs a command on a pseudo-terminal and presses Ctrl-C three times, or closes the terminal.

usage: terminal.py ctrl-c|close COMMAND...
Exit code 0 when the command then ends by itself, with 130 after Ctrl-C.
"""
import os
import pty
import sys
import time

how, command = sys.argv[1], sys.argv[2:]
pid, master = pty.fork()
if pid == 0:
    os.execv(command[0], command)

seen = b""
deadline = time.time() + 20
while b"\x1b[Kstep" not in seen and time.time() < deadline:  # the live line
    seen += os.read(master, 4096)
assert b"\x1b[Kstep" in seen, "no live line came: %r" % seen[-300:]
if how == "ctrl-c":
    for _ in range(3):
        os.write(master, b"\x03")
        time.sleep(0.05)
    while True:
        try:
            part = os.read(master, 4096)
        except OSError:
            break
        if not part:
            break
        seen += part
else:
    os.close(master)
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
wanted = [130] if how == "ctrl-c" else [129, -1]
if status not in wanted:
    sys.exit("the command ended with %d, wanted one of %s" % (status, wanted))
