// Package agents has no code of its own: its tests have the programs of real agents work in our
// sandbox, with a model that follows a script. What each hands to its model as a call's result is
// held against a text in testdata.
package agents
