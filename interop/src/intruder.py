"""Takes over a thread of a running process: makes it execute system calls that the caller chooses.

The calls are the process's own, with its user, its filters and its descriptors, as those of a
program that was hijacked. Commands come as lines on the standard input, one answer for each:

    call NUMBER A B C D E F    what the call returned; a negative number is an error's
    write ADDRESS HEX          0
    read ADDRESS LENGTH        the bytes, as hexadecimal digits

At the end of the input the thread continues where it was stopped. x86_64 only.
"""

import ctypes
import os
import sys

SEIZE, INTERRUPT, GETREGS, SETREGS, SINGLESTEP, CONT, DETACH = (
    0x4206, 0x4207, 12, 13, 9, 7, 17)
EVENT_STOP = 128
SIGTRAP = 5
ALL_THREADS = 0x40000000
SYSCALL = b"\x0f\x05"

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


class Registers(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in (
        "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss "
        "fs_base gs_base ds es fs gs").split()]


def ptrace(request, tid, address=None, data=None):
    if libc.ptrace(request, tid, address, data) == -1:
        errno = ctypes.get_errno()
        raise OSError(errno, os.strerror(errno))


class Thread:
    def __init__(self, pid, tid):
        self.tid = tid
        self.memory = open(f"/proc/{pid}/mem", "r+b", buffering=0)
        ptrace(SEIZE, tid)
        ptrace(INTERRUPT, tid)
        self.wait(lambda status: status >> 16 == EVENT_STOP)
        self.saved = self.registers()
        self.instruction = self.find_instruction(pid)

    def wait(self, is_it):
        """Waits until the thread has stopped in this way; delivers other signals."""
        while True:
            _, status = os.waitpid(self.tid, ALL_THREADS)
            if not os.WIFSTOPPED(status):
                raise SystemExit("the thread has ended")
            if is_it(status):
                return
            ptrace(CONT, self.tid, None, os.WSTOPSIG(status))

    def registers(self):
        registers = Registers()
        ptrace(GETREGS, self.tid, None, ctypes.addressof(registers))
        return registers

    def set(self, registers):
        ptrace(SETREGS, self.tid, None, ctypes.addressof(registers))

    def find_instruction(self, pid):
        """Returns the address of a system call instruction in the process."""
        with open(f"/proc/{pid}/maps") as maps:
            ranges = [line.split()[0] for line in maps if " r-xp " in line and "[vsyscall]" not in line]
        for start, end in ([int(part, 16) for part in one.split("-")] for one in ranges):
            at = self.read(start, end - start).find(SYSCALL)
            if at >= 0:
                return start + at
        raise SystemExit("no system call in the program")

    def read(self, address, length):
        self.memory.seek(address)
        return self.memory.read(length)

    def write(self, address, content):
        self.memory.seek(address)
        self.memory.write(content)

    def call(self, number, arguments):
        now = Registers.from_buffer_copy(self.saved)
        now.rip, now.rax = self.instruction, number
        # Marks that there is no interrupted call for the kernel to restart.
        now.orig_rax = 2**64 - 1
        for name, value in zip(("rdi", "rsi", "rdx", "r10", "r8", "r9"), arguments):
            setattr(now, name, value % 2**64)
        self.set(now)
        ptrace(SINGLESTEP, self.tid)
        self.wait(lambda status: os.WSTOPSIG(status) == SIGTRAP and status >> 16 == 0)
        return ctypes.c_longlong(self.registers().rax).value

    def leave(self):
        try:
            self.set(self.saved)
            ptrace(DETACH, self.tid)
        except ProcessLookupError:
            pass  # It was killed.


def obey(thread, words):
    if words[0] == "call":
        number, *arguments = (int(word) for word in words[1:])
        return thread.call(number, arguments)
    if words[0] == "write":
        thread.write(int(words[1]), bytes.fromhex(words[2]))
        return 0
    if words[0] == "read":
        return thread.read(int(words[1]), int(words[2])).hex()
    raise SystemExit(f"no such command: {words}")


def main():
    thread = Thread(int(sys.argv[1]), int(sys.argv[2]))
    print("in", flush=True)
    for line in sys.stdin:
        print(obey(thread, line.split()), flush=True)
    thread.leave()


main()
