package bus

import (
	"encoding/binary"
	"slices"
	"testing"
)

// message is one of the protocol's, as far as its length goes.
func message(order binary.ByteOrder, fields, body int) []byte {
	m := make([]byte, messageHeader+(fields+7)&^7+body)
	m[0] = 'l'
	if order == binary.BigEndian {
		m[0] = 'B'
	}
	order.PutUint32(m[4:], uint32(body))
	order.PutUint32(m[12:], uint32(fields))
	return m
}

func TestMessagesAreFoundHoweverTheyAreCut(t *testing.T) {
	var stream []byte
	var starts []int
	for i, size := range []int{0, 1, 7, 8, 9, 100, 1000, 0} {
		order := []binary.ByteOrder{binary.LittleEndian, binary.BigEndian}[i%2]
		starts = append(starts, len(stream))
		stream = append(stream, message(order, size, 3*size)...)
	}
	for cut := 1; cut <= len(stream); cut++ {
		var m messageStream
		for at := 0; at < len(stream); at += cut {
			end := min(at+cut, len(stream))
			got := at + m.lastStart(stream[at:end])
			want := at
			for _, start := range starts {
				if start >= at && start < end {
					want = start
				}
			}
			if got != want || m.lost {
				t.Fatalf("pieces of %d: at %d the last message begins at %d, want %d (%v)", cut, at, got, want, slices.Contains(starts, got))
			}
		}
	}
}

func TestWhatIsNoMessageIsCarriedAsItComes(t *testing.T) {
	for _, text := range []string{"AUTH EXTERNAL 30\r\nBEGIN\r\n", "l\x01\x00\x01\xff\xff\xff\xff\x01\x00\x00\x00\xff\xff\xff\xff"} {
		var m messageStream
		if at := m.lastStart([]byte(text)); at != 0 || !m.lost {
			t.Errorf("%q: %d, %v", text, at, m.lost)
		}
	}
}
