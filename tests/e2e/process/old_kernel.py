"""Runs a program like Linux before 6.5, which has no pidfd of a socket's peer:
getsockopt(SO_PEERPIDFD) returns ENOPROTOOPT.

    old_kernel.py PROGRAM [ARGUMENT]...

For x86-64. The program keeps the filter, and so do its children.
"""

import ctypes
import errno
import os
import struct
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO = 0x7FFF0000, 0x00050000
BPF_LOAD_WORD, BPF_JUMP_IF_EQUAL, BPF_RETURN = 0x20, 0x15, 0x06
AUDIT_ARCH_X86_64, SYS_GETSOCKOPT, SO_PEERPIDFD = 0xC000003E, 55, 77
# Offsets in struct seccomp_data: the call, the architecture, the lower half of the third argument.
NUMBER, ARCHITECTURE, OPTION = 0, 4, 16 + 2 * 8


def filter_program():
    """(code, where to jump if equal, if not, value): equal goes on, all else to the last line."""
    yield BPF_LOAD_WORD, 0, 0, ARCHITECTURE
    yield BPF_JUMP_IF_EQUAL, 0, 5, AUDIT_ARCH_X86_64
    yield BPF_LOAD_WORD, 0, 0, NUMBER
    yield BPF_JUMP_IF_EQUAL, 0, 3, SYS_GETSOCKOPT
    yield BPF_LOAD_WORD, 0, 0, OPTION
    yield BPF_JUMP_IF_EQUAL, 0, 1, SO_PEERPIDFD
    yield BPF_RETURN, 0, 0, SECCOMP_RET_ERRNO | errno.ENOPROTOOPT
    yield BPF_RETURN, 0, 0, SECCOMP_RET_ALLOW


class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("lines", ctypes.c_char_p)]


def main():
    lines = [struct.pack("HBBI", *line) for line in filter_program()]
    libc = ctypes.CDLL(None, use_errno=True)
    program = Filter(len(lines), b"".join(lines))
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program)):
        sys.exit(f"no filter of system calls: {os.strerror(ctypes.get_errno())}")
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
