"""hold_lock.py FOLDER: holds the lock of a dataset's folder, as a program that writes there does, until it is killed.
Prints "held" when it has it."""
import fcntl
import os
import struct
import sys
import time

F_OFD_SETLK = 37
fd = os.open(os.path.join(sys.argv[1], ".ccstream.lock"), os.O_RDWR | os.O_CREAT, 0o666)
fcntl.fcntl(fd, F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
os.write(fd, b"%d\n" % os.getpid())
print("held", flush=True)
parent = os.getppid()
while os.getppid() == parent:  # ends with the test
    time.sleep(0.2)
