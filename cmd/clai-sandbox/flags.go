package main

import (
	"context"
	"errors"
	"os"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/cmd/delegated"
	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/integration/session"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox"
)

// A job is what the flags, the configuration, what is stored and the host together come to.
type job struct {
	profile     profile.Profile
	directories profile.Directories
	plan        sandbox.Plan
	session     *session.Session
	prepared    *session.Prepared
	broker      grants.Broker // nil: none
}

// How a job is prepared: to be looked at, or to be run.
type preparation func(*session.Session, func(*profile.Request)) (*session.Prepared, error)

// prepare reads the configuration and what is stored, and builds the plan. options say more about
// the session.
func prepare(c *cli.Context, options session.Options, how preparation) (job, error) {
	request, err := delegated.RequestFrom(c)
	if err != nil {
		return job{}, err
	}
	return prepareRequest(request, options, how)
}

func prepareRequest(request profile.Request, options session.Options, how preparation) (job, error) {
	caller, err := profile.CurrentCaller()
	if err != nil {
		return job{}, err
	}
	j := job{directories: caller.Directories()}
	config, err := profile.Load(j.directories)
	if err != nil {
		return j, err
	}
	if err := j.makeDirectories(); err != nil {
		return j, err
	}
	j.broker, options.Caller, options.Config, options.Request, options.SSHAgent = options.Broker, caller, config, request, sshAgent
	if j.session, err = session.Open(context.Background(), options); err != nil {
		return j, err
	}
	if j.prepared, err = how(j.session, nil); err != nil {
		j.session.Close()
		return j, err
	}
	j.profile, j.plan = j.prepared.Profile, j.prepared.Plan
	return j, nil
}

// makeDirectories makes the directories that this program keeps its files in. A sandbox covers
// them, and what is not there yet could not be covered: it would show when it comes while the
// command runs.
func (j job) makeDirectories() error {
	for _, dir := range []string{j.directories.Config, j.directories.State} {
		if dir == "" {
			continue
		}
		if err := os.MkdirAll(dir, 0o700); err != nil && !errors.Is(err, os.ErrPermission) && !errors.Is(err, syscall.EROFS) {
			return err
		}
	}
	return nil
}

// bwrap finds bubblewrap. BWRAP_VARIABLE names another one than the system's.
func (j job) bwrap() (sandbox.Bwrap, error) {
	return sandbox.FindBwrap(os.Getenv(profile.BwrapVariable), j.directories.State)
}
