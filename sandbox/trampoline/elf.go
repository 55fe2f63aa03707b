package trampoline

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"runtime"
)

// elfImage is a static program of a code segment and a data segment, and a stack that cannot be executed (elf(5)).
func elfImage(code, data []byte) []byte {
	align := uint64(4 << 10)
	machine := elf.EM_X86_64
	if runtime.GOARCH == "arm64" {
		align, machine = 64<<10, elf.EM_AARCH64 // the largest page of any kernel
	}
	header := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT), Entry: codeAddressInside,
		Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 3,
	}
	segment := func(offset, address uint64, content []byte, flags elf.ProgFlag) elf.Prog64 {
		n := uint64(len(content))
		return elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(flags), Off: offset, Vaddr: address, Paddr: address, Filesz: n, Memsz: n, Align: align}
	}
	var image bytes.Buffer
	image.Grow(int(2*align) + len(data))
	binary.Write(&image, binary.LittleEndian, header)
	binary.Write(&image, binary.LittleEndian, []elf.Prog64{
		segment(align, codeAddressInside, code, elf.PF_R|elf.PF_X),
		segment(2*align, dataAddress, data, elf.PF_R|elf.PF_W),
		{Type: uint32(elf.PT_GNU_STACK), Flags: uint32(elf.PF_R | elf.PF_W), Align: 16},
	})
	image.Write(make([]byte, int(align)-image.Len()))
	image.Write(code)
	image.Write(make([]byte, int(2*align)-image.Len()))
	image.Write(data)
	return image.Bytes()
}
