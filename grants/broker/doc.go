// Package broker holds questions until a person answers.
//
// A question passes, in this order: its form and place (grants.Rules.Ask), what nobody may grant,
// what the session sees already, what was denied in this session before, an equal question that
// waits already, and the limits. Only then is a person asked.
//
// A decision passes: is the request still pending; is the decision valid for what the path means
// now; then, under the lock, it is claimed, and from there on it is the one that counts. It is
// written to the audit file, stored, and only then told to anybody. If it cannot be written, the
// request is pending again and nothing was granted.
//
// The broker does not look into requests: whoever reaches it as a person decides. The socket and
// who may use it is the work of package server.
package broker
