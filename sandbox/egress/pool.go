package egress

import (
	"sync"
	"syscall"
)

// A pool bounds the connections of all proxies of a process, because descriptors are the process's:
// a server that runs many sandboxes needs some for itself.
//
// A run may take as many as are left over by all. So one run gets half of the pool at most, two a
// third each, and whoever comes late still finds some (the dynamic thresholds of switches that
// share a buffer).
type pool struct {
	limit int

	mu    sync.Mutex
	used  int
	freed chan struct{} // closed when something comes back
}

const (
	maxPool = 2 * maxConnections // one run alone gets maxConnections
	minPool = 16
	// filesPerConnection are the client's end, the server's, and a name server's; and as much for
	// all else.
	filesPerConnection = 4
)

// shared is the pool of this process.
var shared = sync.OnceValue(func() *pool {
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) != nil {
		files.Cur = 0
	}
	return newPool(poolLimit(files.Cur))
})

func poolLimit(files uint64) int {
	return int(max(minPool, min(maxPool, files/filesPerConnection)))
}

func newPool(limit int) *pool { return &pool{limit: limit, freed: make(chan struct{})} }

// take takes one more for a run that has own. Where there is none, freed is closed as soon as that
// may have changed.
func (p *pool) take(own int) (taken bool, freed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if own >= maxConnections || own >= p.limit-p.used {
		return false, p.freed
	}
	p.used++
	return true, nil
}

func (p *pool) give() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used--
	close(p.freed)
	p.freed = make(chan struct{})
}
