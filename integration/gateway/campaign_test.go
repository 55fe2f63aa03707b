package gateway

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/grants/client"
	"github.com/clairun/clai-sandbox/profile"
)

// TestManyOperationsWithKillsLoseNothing adds, revokes, narrows, asks and decides while the gateway
// is killed, and holds all that is stored against what was said to be done. With a disk that is
// filled again before each operation, what gives may be refused, and what takes away is not. It
// runs in a namespace of its own, where it may mount a small disk.
func TestManyOperationsWithKillsLoseNothing(t *testing.T) {
	for name, role := range map[string]string{"with room": "campaign", "on a full disk": "campaign full"} {
		t.Run(name, func(t *testing.T) {
			home, err := os.MkdirTemp("", "g")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(home)
			command := exec.Command(os.Args[0])
			command.Env = append(os.Environ(), "GATEWAY_TEST_ROLE="+role, "HOME="+home, "XDG_CONFIG_HOME=", "XDG_STATE_HOME="+home+"/state", "XDG_RUNTIME_DIR="+home+"/run")
			command.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, // with the last process of a namespace all end
				UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
			}
			out, err := command.CombinedOutput()
			if err != nil && !errors.As(err, new(*exec.ExitError)) {
				t.Skipf("this machine gives no user namespace to mount a small disk in: %v", err)
			}
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			t.Logf("%s", out)
		})
	}
}

// A campaign knows what has to be there.
type campaign struct {
	place
	random *rand.Rand
	full   bool
	have   map[string]grants.Grant // by id
	kills  int
	none   int // operations that were refused for want of room
}

func runCampaign(full bool) error {
	caller, err := profile.CurrentCaller()
	if err != nil {
		return err
	}
	os.Setenv("GATEWAY_TEST_ROLE", "gateway")
	seed := uint64(time.Now().UnixNano())
	c := &campaign{place: place{caller.Home, caller.Directories()}, random: rand.New(rand.NewPCG(seed, 1)), full: full, have: map[string]grants.Grant{}}
	if err := os.MkdirAll(c.d.State, 0o700); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", caller.Home+"/state", "tmpfs", 0, "size=8m,mode=700"); err != nil {
		return err
	}
	// Processes are looked for by their numbers here.
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	operations := 300 // make stress: more
	if n, err := strconv.Atoi(os.Getenv("GATEWAY_TEST_OPERATIONS")); err == nil {
		operations = n
	}
	if full {
		if err := c.tellsWhyItDoesNotStart(); err != nil {
			return err
		}
	}
	for i := range operations {
		if err := c.operation(i); err != nil {
			return fmt.Errorf("seed %d, operation %d, after %d kills: %w", seed, i, c.kills, err)
		}
	}
	fmt.Printf("%d operations, %d kills of the gateway, %d refused for want of room, %d grants at the end\n", operations, c.kills, c.none, len(c.have))
	return nil
}

// tellsWhyItDoesNotStart fills the disk before a gateway was ever there: who starts one hears why
// it does not.
func (c *campaign) tellsWhyItDoesNotStart() error {
	if err := c.fill(); err != nil {
		return err
	}
	defer os.Remove(c.ballast())
	_, err := c.client().Status(context.Background())
	if err == nil || !strings.Contains(err.Error(), "no space left") {
		return fmt.Errorf("a full disk, and the gateway: %v", err)
	}
	return nil
}

// operation does one thing, with a kill beside it now and then, and looks at all there is.
func (c *campaign) operation(i int) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	person := c.client()
	killed := make(chan struct{})
	if c.random.IntN(5) == 0 {
		c.kills++
		pid, after := c.pid(), time.Duration(c.random.IntN(3000))*time.Microsecond
		go func() {
			defer close(killed)
			<-time.After(after)
			if pid > 1 {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}()
	} else {
		close(killed)
	}
	// By turns a disk with room and one that is filled before each operation.
	if c.full && i/20%2 == 1 {
		if err := c.fill(); err != nil {
			return err
		}
	} else if c.full {
		os.Remove(c.ballast())
	}
	var err error
	switch n := c.random.IntN(10); {
	case n < 3 || len(c.have) == 0:
		err = c.give(ctx, person)
	case n < 5:
		err = c.ask(ctx, person)
	case n < 7:
		err = c.narrow(ctx, person)
	default:
		err = c.revoke(ctx, person)
	}
	<-killed
	if err != nil {
		return err
	}
	return c.check(ctx, person)
}

// refused takes an error of what gives for what it may be: there is no room, or the session went
// with its gateway.
func (c *campaign) refused(err error) error {
	var unavailable *grants.UnavailableError
	if errors.As(err, &unavailable) && c.full && !strings.HasPrefix(unavailable.Why, "no broker") {
		c.none++
		return nil
	}
	return err
}

func (c *campaign) give(ctx context.Context, person *client.Client) error {
	n := grants.NewGrant{Agent: []string{"main", "other"}[c.random.IntN(2)], Path: fmt.Sprintf("%s/file%d", c.home, c.random.IntN(20)), Access: profile.Access(1 + c.random.IntN(2))}
	g, err := person.Add(ctx, n)
	if err != nil {
		return c.refused(fmt.Errorf("add: %w", err))
	}
	for id, other := range c.have {
		if other.Agent == g.Agent && other.Path == g.Path && other.Access == g.Access && id != g.ID {
			return fmt.Errorf("two grants of %s: %s and %s", g.Path, id, g.ID)
		}
	}
	c.have[g.ID] = g
	return nil
}

// ask has an agent ask and a person allow it. Either may find that the gateway was killed; then the
// person asks again by the same name.
func (c *campaign) ask(ctx context.Context, person *client.Client) error {
	s, err := person.Open(ctx, grants.SessionSpec{Agent: "main", Workspace: "/w"})
	if err != nil {
		return c.refused(err)
	}
	defer s.Close()
	inside := client.Client{Socket: s.Socket}
	path := fmt.Sprintf("%s/asked%d", c.home, c.random.IntN(20))
	answered := make(chan error, 1)
	go func() {
		_, err := inside.Ask(ctx, "", grants.Asking{Path: path, Access: profile.ReadOnly})
		answered <- err
	}()
	for {
		list, err := person.Pending(ctx)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			select {
			case <-answered: // it was granted before, could not be recorded, or the gateway was killed
				return nil
			case <-time.After(time.Millisecond):
				continue
			}
		}
		r := list[0]
		answer, err := person.Decide(ctx, r.ID, grants.Decision{Kind: grants.AllowAlways, Path: r.ResolvedPath, Access: profile.ReadOnly, Scope: grants.ScopeAlways})
		var ended *grants.EndedError
		switch {
		case errors.As(err, &ended) && ended.Outcome == grants.OutcomeDenied: // as the next gateway does with what waited
			return nil
		case errors.As(err, new(*grants.UnknownError)): // it went with the gateway
			return nil
		case err != nil:
			return c.refused(fmt.Errorf("decide: %w", err))
		}
		c.have[answer.GrantID] = grants.Grant{ID: answer.GrantID, Agent: "main", Path: answer.Path, Access: answer.Access}
		return nil
	}
}

func (c *campaign) pick(is func(grants.Grant) bool) (grants.Grant, bool) {
	for _, g := range c.have {
		if is(g) {
			return g, true
		}
	}
	return grants.Grant{}, false
}

func (c *campaign) narrow(ctx context.Context, person *client.Client) error {
	g, found := c.pick(func(g grants.Grant) bool { return g.Access == profile.ReadWrite })
	if !found {
		return nil
	}
	taken, err := person.Narrow(ctx, g.ID)
	if err != nil {
		return fmt.Errorf("narrow: %w", err)
	}
	delete(c.have, g.ID) // it may have become one that there was already
	c.have[taken.ID] = taken.Grant
	return c.recorded("grant_narrowed", g.ID)
}

// recorded looks for the line about what was taken away, which is in the audit file at once: on a
// full disk in blocks that are kept for it.
func (c *campaign) recorded(event, id string) error {
	text, err := os.ReadFile(filepath.Join(c.d.State, "audit.log"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, `"event":"`+event+`"`) && strings.Contains(line, `"id":"`+id+`"`) {
			return nil
		}
	}
	return fmt.Errorf("no line about %s of %s", event, id)
}

func (c *campaign) revoke(ctx context.Context, person *client.Client) error {
	g, _ := c.pick(func(grants.Grant) bool { return true })
	if _, err := person.Revoke(ctx, g.ID); err != nil {
		return fmt.Errorf("revoke: %w", err)
	}
	delete(c.have, g.ID)
	return c.recorded("grant_revoked", g.ID)
}

// check holds what a gateway, and what a run, knows against what has to be there.
func (c *campaign) check(ctx context.Context, person *client.Client) error {
	all, err := person.Grants(ctx)
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	if len(all) != len(c.have) {
		return fmt.Errorf("%d grants, want %d", len(all), len(c.have))
	}
	for _, g := range all {
		if want, found := c.have[g.ID]; !found || want.Access != g.Access || want.Path != g.Path {
			return fmt.Errorf("%+v, want %+v", g, want)
		}
	}
	for _, agent := range []string{"main", "other"} {
		list, err := grants.ReadSnapshot(c.d.State, agent)
		if err != nil && !c.full {
			return fmt.Errorf("a run: %w", err)
		}
		for _, g := range list {
			if want, found := c.have[g.ID]; !found || g.Access > want.Access {
				return fmt.Errorf("a run is shown %+v, want %+v", g, want)
			}
		}
	}
	return nil
}

func (c *campaign) ballast() string { return filepath.Join(c.home, "state", "ballast") }

// fill takes what is left of the disk, as a command in its workspace may.
func (c *campaign) fill() error {
	file, err := os.OpenFile(c.ballast(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	for size := 1 << 16; size > 0; {
		if _, err := file.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}
