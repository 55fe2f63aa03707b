package mcp

import (
	"bytes"
	"strings"
	"testing"
)

// However it comes in pieces, the complaint is left out, and nothing else.
func TestBashsComplaintAboutItsTerminalIsLeftOut(t *testing.T) {
	const said = "bash: [42: 1 (255)] tcsetattr: Inappropriate ioctl for device\n"
	for text, want := range map[string]string{
		said:                        "",
		"y\n" + said + "bash: [b":   "y\nbash: [b",
		"a" + said + said + "b\n":   "ab\n",
		"bash: [1: nothing\nbash: ": "bash: [1: nothing\nbash: ",
		"bash: line 1: x\nba":       "bash: line 1: x\nba",
		"bash: [1: 2 (3)] tcsetattr: " + strings.Repeat("x", 300): "bash: [1: 2 (3)] tcsetattr: " + strings.Repeat("x", 300),
	} {
		for size := 1; size <= len(text); size++ {
			var got bytes.Buffer
			w := &withoutTerminal{to: &got}
			for rest := []byte(text); len(rest) > 0; rest = rest[min(size, len(rest)):] {
				if n, err := w.Write(rest[:min(size, len(rest))]); n != min(size, len(rest)) || err != nil {
					t.Fatal(n, err)
				}
			}
			w.flush()
			if got.String() != want {
				t.Fatalf("%q in pieces of %d: %q", text, size, got.String())
			}
		}
	}
}
