// Package mcp is the agent's backend: a server of the Model Context Protocol whose tools run
// everything inside the sandbox, ask a person for what is lacking, and say in fields what happened.
//
// Each client has a client session: a session with the broker, a private /tmp, background
// processes. They end with it.
package mcp
