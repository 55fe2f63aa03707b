#include "textflag.h"

// The stub: see stub.go. It is never called here: its code is copied into an ELF of its own, so it refers to nothing but
// the list at its fixed place and the stack as the kernel leaves it (argc, argv, 0, environment, 0).
//
// R12: the record; R13: the last result; R14: its flags; R15: the environment.
TEXT ·stub(SB), NOSPLIT|NOFRAME, $0-0
	MOVQ 0(SP), AX
	LEAQ 16(SP)(AX*8), R15
	MOVQ $0x520000, BX    // stubData
	LEAQ 64(BX), R12
record:
	MOVL 0(R12), AX       // the call's number
	MOVL 4(R12), R14
	TESTL $2, R14         // stubAfterNoExec
	JZ   arguments
	CMPQ R13, $-8         // ENOEXEC
	JNE  next
arguments:
	MOVQ 8(R12), DI
	MOVQ 16(R12), SI
	MOVQ 24(R12), DX
	MOVQ 32(R12), R10
	MOVQ 40(R12), R8
	MOVQ 48(R12), R9
	TESTL $4, R14         // stubEnvironment
	JZ   call
	MOVQ R15, DX
call:
	SYSCALL
	MOVQ AX, R13
	MOVQ 56(R12), CX      // where the result goes
	TESTQ CX, CX
	JZ   check
	MOVL AX, 0(CX)
check:
	CMPQ AX, $-4095
	JCS  next
	MOVL AX, 8(BX)        // the failure
	TESTL $1, R14         // stubMayFail
	JNZ  next
	MOVQ 0(BX), R12       // and what to do about it
	JMP  record
next:
	ADDQ $64, R12
	JMP  record
	BYTE $0x0f; BYTE $0x0b; BYTE $0x53; BYTE $0x54; BYTE $0x55; BYTE $0x42; BYTE $0x0f; BYTE $0x0b // stubEnd

// func stubAddress() *byte
TEXT ·stubAddress(SB), NOSPLIT, $0-8
	LEAQ ·stub(SB), AX
	MOVQ AX, ret+0(FP)
	RET
