package sandbox

import (
	"context"
	"errors"
	"time"
)

// worksTimeout bounds the trial of Works.
const worksTimeout = 20 * time.Second

// Works has a command that does nothing run in a sandbox of this plan, and returns why that cannot
// be done: the errors of Launcher.Run but those about the command. It finds out whether the kernel
// lets bwrap work, which bwrap's presence alone does not show.
func Works(ctx context.Context, plan Plan, l Launcher) error {
	ctx, cancel := context.WithTimeout(ctx, worksTimeout)
	defer cancel()
	_, err := l.Run(ctx, plan, []string{"/bin/sh", "-c", ":"}, Stdio{})
	if errors.As(err, new(*CommandError)) {
		return nil
	}
	return err
}
