package trampoline

import (
	"bytes"
	"encoding/binary"
	"runtime"
)

// The parts of elf(5) that a static program needs. Package debug/elf has all of them, and brings
// the readers of compressed debug sections into every start.
type (
	elfHeader struct {
		Ident                                      [16]byte
		Type, Machine                              uint16
		Version                                    uint32
		Entry, Phoff, Shoff                        uint64
		Flags                                      uint32
		Ehsize, Phentsize, Phnum, Shentsize, Shnum uint16
		Shstrndx                                   uint16
	}
	elfSegment struct {
		Type, Flags                             uint32
		Off, Vaddr, Paddr, Filesz, Memsz, Align uint64
	}
)

const (
	etExec                     = 2
	emX86_64, emAARCH64        = 62, 183
	ptLoad, ptGNUStack         = 1, 0x6474e551
	pfX, pfW, pfR       uint32 = 1, 2, 4
)

// elfImage is a static program of a code segment and a data segment, and a stack that cannot be
// executed (elf(5)).
func elfImage(code, data []byte) []byte {
	align := uint64(4 << 10)
	machine := uint16(emX86_64)
	if runtime.GOARCH == "arm64" {
		align, machine = 64<<10, emAARCH64 // the largest page of any kernel
	}
	header := elfHeader{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', 2, 1, 1}, // 64 bits, little-endian, version 1
		Type:  etExec, Machine: machine, Version: 1, Entry: codeAddressInside,
		Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 3,
	}
	segment := func(offset, address uint64, content []byte, flags uint32) elfSegment {
		n := uint64(len(content))
		return elfSegment{Type: ptLoad, Flags: flags, Off: offset, Vaddr: address, Paddr: address, Filesz: n, Memsz: n, Align: align}
	}
	var image bytes.Buffer
	image.Grow(int(2*align) + len(data))
	binary.Write(&image, binary.LittleEndian, header)
	binary.Write(&image, binary.LittleEndian, []elfSegment{
		segment(align, codeAddressInside, code, pfR|pfX),
		segment(2*align, dataAddress, data, pfR|pfW),
		{Type: ptGNUStack, Flags: pfR | pfW, Align: 16},
	})
	image.Write(make([]byte, int(align)-image.Len()))
	image.Write(code)
	image.Write(make([]byte, int(2*align)-image.Len()))
	image.Write(data)
	return image.Bytes()
}
