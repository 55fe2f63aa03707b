package protect

import (
	"os"
	"sync"
	"testing"
)

// Who looks at records while others are made takes the lock of none that is new.
func TestARecordIsMadeWhileOthersLook(t *testing.T) {
	state := t.TempDir()
	done := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				records(state, func(string, *os.File, bool) {})
			}
		}
	})
	for range 500 {
		r, err := NewRecord(state, Run{})
		if err != nil {
			t.Error(err)
			break
		}
		r.Remove()
	}
	close(done)
	looking.Wait()
}
