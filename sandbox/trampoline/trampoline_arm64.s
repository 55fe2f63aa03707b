#include "textflag.h"

// The trampoline: see trampoline.go and trampoline_amd64.s.
//
// R19: the header; R20: the record; R21: the last result; R22: its flags; R23: the environment.
TEXT ·trampoline(SB), NOSPLIT|NOFRAME, $0-0
	MOVD (RSP), R9
	ADD  $2, R9
	LSL  $3, R9
	MOVD RSP, R23
	ADD  R9, R23
	MOVD $0x520000, R19   // dataAddress
	ADD  $64, R19, R20
record:
	MOVWU 0(R20), R8      // the call's number
	MOVWU 4(R20), R22
	TBZ  $1, R22, ifzero  // AfterNoExec
	CMN  $8, R21          // ENOEXEC
	BNE  next
ifzero:
	TBZ  $3, R22, arguments // IfZero
	CBNZ R21, next
arguments:
	MOVD 8(R20), R0
	MOVD 16(R20), R1
	MOVD 24(R20), R2
	MOVD 32(R20), R3
	MOVD 40(R20), R4
	MOVD 48(R20), R5
	TBZ  $8, R22, second  // each of them may be where an earlier result is
	MOVWU (R0), R0
second:
	TBZ  $9, R22, third
	MOVWU (R1), R1
third:
	TBZ  $10, R22, fourth
	MOVWU (R2), R2
fourth:
	TBZ  $11, R22, fifth
	MOVWU (R3), R3
fifth:
	TBZ  $12, R22, sixth
	MOVWU (R4), R4
sixth:
	TBZ  $13, R22, jump
	MOVWU (R5), R5
jump:
	TBZ  $4, R22, environment // jump
	MOVD R0, R20
	MOVD R1, R19
	B    record
environment:
	TBZ  $2, R22, call    // Environment
	MOVD R23, R2
call:
	SVC
	MOVD R0, R21
	MOVD 56(R20), R9      // where the result goes
	CBZ  R9, check
	MOVW R0, (R9)
check:
	CMN  $4095, R0
	BLO  next
	MOVW R0, 8(R19)       // the failure
	MOVD R20, 16(R19)     // of which record
	TBNZ $0, R22, next    // MayFail
	MOVD 0(R19), R20      // and what to do about it
	B    record
next:
	ADD  $64, R20
	B    record
	WORD $0x54530b0f
	WORD $0x0b0f4255      // codeEnd

// func codeAddress() *byte
TEXT ·codeAddress(SB), NOSPLIT, $0-8
	MOVD $·trampoline(SB), R0
	MOVD R0, ret+0(FP)
	RET
