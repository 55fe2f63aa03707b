// Package outside is the broker of commands that are to run outside of any sandbox: asked for,
// decided, run, and on record.
//
// It stands before the broker of paths and answers for both: what waits for a person is one list.
// The policy of this host says whether a command runs, is denied or waits; for one that comes out
// of a sandbox, the lists of hostexec say first whether it may at all. Package runner runs it, and
// asks the policy once more.
//
// What a person is shown does not change while it waits, and an allowance names its digest. Each
// decision is in the audit file, on the disk, before it takes effect. A gateway that is killed
// leaves a record of what it had not answered: the next one ends that, and tells whoever asks again
// under the same name. So nothing runs twice, and nothing without its decision on record.
package outside
