// Package profile says what one agent's sandbox may see and do.
//
// A Profile is plain data: a workspace, path grants with their origin, the environment, network and
// session bus, limits. Most callers need two functions: Load reads the configuration files, and
// Resolve joins one agent's configuration with what was asked for on the command line into a
// Profile.
//
// The package shares the words that every other room uses (access, grant, origin) and imports none
// of them. It does not look at what lies behind a path: a grant here is what a person wrote,
// cleaned and made absolute. Following symbolic links, and leaving out what no longer exists, is
// the work of package sandbox, because it must be done again before each run.
//
// Zero values are the safe ones: no access, no network, no session bus.
package profile
