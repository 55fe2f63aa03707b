package sandbox

import (
	"context"
	"errors"
	"time"
)

// worksTimeout bounds the trial of Works.
const worksTimeout = 20 * time.Second

// Works runs nothing in a sandbox of this plan, and returns why that cannot be done: as
// Launcher.Run's error, without those about the command. That bwrap is there does not say that the
// kernel lets it work.
func Works(ctx context.Context, plan Plan, l Launcher) error {
	ctx, cancel := context.WithTimeout(ctx, worksTimeout)
	defer cancel()
	_, err := l.Run(ctx, plan, []string{"/bin/sh", "-c", ":"}, Stdio{})
	if errors.As(err, new(*CommandError)) {
		return nil
	}
	return err
}
