#include "textflag.h"

// The trampoline: see trampoline.go. It is never called here: its code is copied into an ELF of its own, so it refers to
// nothing but the list at its fixed place and the stack as the kernel leaves it (argc, argv, 0, environment, 0).
//
// BX: the header; R12: the record; R13: the last result; R14: its flags; R15: the environment.
TEXT ·trampoline(SB), NOSPLIT|NOFRAME, $0-0
	MOVQ 0(SP), AX
	LEAQ 16(SP)(AX*8), R15
	MOVQ $0x520000, BX    // dataAddress
	LEAQ 64(BX), R12
record:
	MOVL 0(R12), AX       // the call's number
	MOVL 4(R12), R14
	TESTL $2, R14         // AfterNoExec
	JZ   ifzero
	CMPQ R13, $-8         // ENOEXEC
	JNE  next
ifzero:
	TESTL $8, R14         // IfZero
	JZ   arguments
	TESTQ R13, R13
	JNZ  next
arguments:
	MOVQ 8(R12), DI
	MOVQ 16(R12), SI
	MOVQ 24(R12), DX
	MOVQ 32(R12), R10
	MOVQ 40(R12), R8
	MOVQ 48(R12), R9
	TESTL $0x100, R14     // each of them may be where an earlier result is
	JZ   second
	MOVL (DI), DI
second:
	TESTL $0x200, R14
	JZ   third
	MOVL (SI), SI
third:
	TESTL $0x400, R14
	JZ   fourth
	MOVL (DX), DX
fourth:
	TESTL $0x800, R14
	JZ   fifth
	MOVL (R10), R10
fifth:
	TESTL $0x1000, R14
	JZ   sixth
	MOVL (R8), R8
sixth:
	TESTL $0x2000, R14
	JZ   jump
	MOVL (R9), R9
jump:
	TESTL $16, R14        // jump
	JZ   environment
	MOVQ DI, R12
	MOVQ SI, BX
	JMP  record
environment:
	TESTL $4, R14         // Environment
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
	MOVQ R12, 16(BX)      // of which record
	TESTL $1, R14         // MayFail
	JNZ  next
	MOVQ 0(BX), R12       // and what to do about it
	JMP  record
next:
	ADDQ $64, R12
	JMP  record
	BYTE $0x0f; BYTE $0x0b; BYTE $0x53; BYTE $0x54; BYTE $0x55; BYTE $0x42; BYTE $0x0f; BYTE $0x0b // codeEnd

// func codeAddress() *byte
TEXT ·codeAddress(SB), NOSPLIT, $0-8
	LEAQ ·trampoline(SB), AX
	MOVQ AX, ret+0(FP)
	RET
