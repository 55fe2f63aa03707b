package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/grants/client"
	"github.com/clairun/clai-sandbox/integration/rooms"
	"github.com/clairun/clai-sandbox/integration/session"
	"github.com/clairun/clai-sandbox/integration/shell"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/preset"
	"github.com/clairun/clai-sandbox/sandbox"
)

// holderName is this program as the process that has an agent's sandbox, for clai-shell. It is
// started by that alone.
const holderName = "clai-shell-sandbox"

// holderProgram has a sandbox as long as its owner runs. On descriptor 3 it says the sandbox's name
// and what a person would be told, or behind an empty line why there is none.
func holderProgram(args []string) int {
	report := os.NewFile(3, "report")
	unix.CloseOnExec(3)
	err := errors.New("clai-shell starts it")
	if len(args) == 5 {
		owner := shell.Owner{Directory: args[3], Program: args[4]}
		if owner.PID, err = strconv.Atoi(args[1]); err == nil {
			owner.Began, err = strconv.ParseUint(args[2], 10, 64)
		}
		if err == nil {
			err = hold(args[0], owner, report)
		}
	}
	if err != nil {
		fmt.Fprintf(report, "\n%s\n", explainError(err))
		return statusFor(err)
	}
	return 0
}

// A holder has the sandbox of an agent's lines.
type holder struct {
	sandbox *sandbox.Session
	session *session.Session

	mu       sync.Mutex
	settling bool
	later    []sandbox.Notice // for whoever comes next
}

func hold(agent string, owner shell.Owner, report *os.File) error {
	ends, err := unix.PidfdOpen(owner.PID, 0)
	if err != nil || !owner.Runs() {
		return errors.New("who asked for it has ended")
	}
	if err := os.Chdir(owner.Directory); err != nil {
		return err
	}
	os.Unsetenv("PWD") // it is the line's
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer stop()
	caller, err := profile.CurrentCaller()
	if err != nil {
		return err
	}
	request := profile.Request{Agent: agent}
	all, err := preset.Load(caller.Directories().Config)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(all, func(p preset.Preset) bool { return p.Program != "" && p.Program == owner.Program }); agent == "" && i >= 0 {
		request.Agent = all[i].Name
	}
	request.KnownAgent = slices.Contains(agentNames(all), request.Agent)
	options := session.Options{Broker: client.Default(caller.Directories()), Live: true, Command: shellName + " of " + profile.Printable(owner.Program)}
	j, err := prepareRequest(request, options, (*session.Session).PrepareRun)
	if err != nil {
		return err
	}
	defer j.session.Close()
	bwrap, err := j.bwrap()
	if err != nil {
		return err
	}
	j.prepared.ShowProgram(shellName)
	h := &holder{session: j.session, later: j.plan.Notices}
	dir, err := roomsDirectory()
	if err != nil {
		return err
	}
	if h.sandbox, err = j.prepared.Open(ctx, sandbox.Launcher{Bwrap: bwrap, State: j.directories.State}); err != nil {
		return err
	}
	about := rooms.About{Agent: j.profile.Agent, Workspace: j.profile.Workspace, Command: options.Command, Shell: j.shellIn()}
	id, unreached, err := rooms.Serve(dir, about, h.sandbox, h.news)
	if err != nil {
		h.sandbox.Close()
		return err
	}
	defer unreached()
	defer h.sandbox.Close()
	forget, err := shell.Keep(dir, owner, id)
	if err != nil {
		return err
	}
	defer forget()
	fmt.Fprintf(report, "%s\n%s\n", id, begun(j))
	report.Close()
	gone := make(chan struct{})
	go func() { awaitProcess(ends); close(gone) }()
	select {
	case <-gone:
	case <-ctx.Done():
	case <-h.sandbox.Ended():
	}
	return nil
}

// awaitProcess returns when a process has ended, by its descriptor (pidfd_open(2)).
func awaitProcess(fd int) {
	for {
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1); n > 0 || err != nil && err != unix.EINTR {
			return
		}
	}
}

// begun says to an agent where its lines run from now on. The program is named in full: Claude Code
// has its lines begin with a PATH of its own.
func begun(j job) string {
	may := "changes nothing of the machine"
	if j.profile.WorkspaceAccess != profile.NoAccess {
		may = "may " + j.profile.WorkspaceAccess.Verb() + " " + profile.Printable(j.profile.Workspace)
	}
	return fmt.Sprintf("this and what follows runs in a sandbox, which %s, and reaches %s; what is lacking is asked for with: /run/clai-sandbox/bin/fs_request_grant PATH --reason WHY", may, reaches(j.profile, j.session.ID() != ""))
}

// news is what there is to tell after a line. What it changed of repositories' settings is carried
// over to the host soon.
func (h *holder) news() []sandbox.Notice {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.settling {
		h.settling = true
		time.AfterFunc(settleAfter, func() {
			notices := h.sandbox.Settle()
			h.mu.Lock()
			defer h.mu.Unlock()
			h.settling = false
			h.later = append(h.later, notices...)
		})
	}
	list := slices.Concat(h.later, h.sandbox.News(), h.session.Notices())
	h.later = nil
	return list
}

// settleAfter is how long after a line that is done: several often come at once.
const settleAfter = 200 * time.Millisecond
