package wire

// WaitText says what a run waits for, where the reason it is parked for does
// not say it by itself.
func WaitText(reason string) (text string, ok bool) {
	switch reason {
	case "unknown":
		return "an answer whether a call happened", true
	case "backoff":
		return "the model", true
	case "held":
		return "a build that can go on with it", true
	}
	return "", false
}

// Hint says what to do about a kind of refusal where the server knows nothing
// better. Empty for kinds it does not know.
func Hint(kind string) string {
	switch kind {
	case "invalid", "too-large":
		return "change the request: /v1/openapi.json describes it"
	case "not-found":
		return "check the name, and " + HeaderTenant
	case "conflict", "expired":
		return "somebody or something was first: look again"
	case "decided":
		return "GET /v1/approvals lists what still waits"
	case "settled":
		return "GET /v1/conversations/{conversation} shows how it ended"
	case "full":
		return "try again when less waits"
	case "unsupported":
		return "this server cannot do that"
	case "unavailable":
		return "try again; the request is safe to repeat"
	case "corrupt", "internal", KindMisdirected:
		return "look at the server's log"
	}
	return ""
}

// StateWord is one word for where a conversation stands: how its last run ended,
// where none is under way.
func StateWord(s Status) string {
	switch {
	case s.Damaged:
		return "damaged"
	case s.Active != nil && s.Active.Parked != nil:
		return StatusParked
	case s.State == "idle" && s.Latest != nil:
		return s.Latest.Status
	}
	return s.State
}
