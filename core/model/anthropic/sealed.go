package anthropic

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/layover-run/layover/core/model"
)

// sealed is what this provider needs back beside what its models said, as the
// opaque bytes of a reasoning part: the signature of a thought, or content that
// is nobody else's to read.
type sealed struct {
	Model     string          `json:"model,omitempty"` // asked for; a signature is for its model only
	Signature string          `json:"signature,omitempty"`
	Redacted  string          `json:"redacted,omitempty"`
	Block     json.RawMessage `json:"block,omitempty"` // a whole block of a type that is not known here
	Container *container      `json:"container,omitempty"`
}

// container is where the provider runs code for a conversation. It is asked for
// by its id, as long as it is there.
type container struct {
	ID        string    `json:"id"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

func (s sealed) empty() bool {
	return s.Signature == "" && s.Redacted == "" && s.Block == nil && s.Container == nil
}

// bytes are absent where nothing has to go back.
func (s sealed) bytes() ([]byte, error) {
	if s.empty() {
		return nil, nil
	}
	return seal(s)
}

func seal(v any) ([]byte, error) {
	opaque, err := json.Marshal(v)
	if err != nil {
		return nil, &model.Error{Class: model.Protocol, Err: err, Message: "anthropic: what has to go back does not encode"}
	}
	return opaque, nil
}

// cited is the opaque part of a text: where it has what it says from.
type cited struct {
	Citations []json.RawMessage `json:"citations"`
}

func sealCitations(citations []json.RawMessage) ([]byte, error) {
	if len(citations) == 0 {
		return nil, nil
	}
	return seal(cited{citations})
}

// citations are those of a text, as a request takes them: answers name the file
// of a document, requests must not.
func citations(opaque []byte) ([]map[string]json.RawMessage, error) {
	var c struct {
		Citations []map[string]json.RawMessage `json:"citations"`
	}
	if err := json.Unmarshal(opaque, &c); err != nil {
		return nil, fmt.Errorf("anthropic: citations: %w", err)
	}
	for _, citation := range c.Citations {
		delete(citation, "file_id")
	}
	return c.Citations, nil
}

// The types of a call that the provider executes itself. Its own tools have the
// first; the second are those of servers it reaches for the caller.
const (
	serverToolUse = "server_tool_use"
	mcpToolUse    = "mcp_tool_use"
)

// direct reports whether the model itself made a call, and no code of its own.
func direct(caller json.RawMessage) bool {
	var by map[string]string
	return json.Unmarshal(caller, &by) == nil && len(by) == 1 && by["type"] == "direct"
}

// capability is the tool that a call of the provider's belongs to: code execution
// is enabled as one and runs as several.
func capability(name string) string {
	switch name {
	case "bash_code_execution", "text_editor_code_execution":
		return "code_execution"
	}
	return name
}

// extras are the members of a call that have no place in its parts, such as who
// called it, or its name where that is not the one of its capability; absent
// where there are none.
func extras(raw json.RawMessage, name string) []byte {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		return nil
	}
	for member, value := range members {
		switch {
		case member == "name" && capability(name) != name:
		case member == "id", member == "name", member == "input", string(value) == "null":
			delete(members, member)
		case member == "caller" && direct(value): // as is every call that does not say so
			delete(members, member)
		case member == "type" && (string(value) == `"tool_use"` || string(value) == `"`+serverToolUse+`"`):
			delete(members, member)
		}
	}
	if len(members) == 0 {
		return nil
	}
	out, err := json.Marshal(members)
	if err != nil {
		return nil
	}
	return out
}
