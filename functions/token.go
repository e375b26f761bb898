package functions

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"strings"
)

// TokenCookie holds, in a browser, what stands for the token of a server.
const TokenCookie = "layover_session"

// SessionOf is what stands for a token in TokenCookie: who reads the cookie
// does not learn the token, and another token ends every session.
func SessionOf(token string) string {
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte("layover console session 1"))
	return hex.EncodeToString(mac.Sum(nil))
}

// SameToken compares what somebody gave with a secret, in a time that says
// nothing about either.
func SameToken(given, want string) bool {
	g, w := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(g[:], w[:]) == 1
}

// bears reports whether a request shows a token, as a bearer token or by the
// session of a browser.
func bears(r *http.Request, token string) bool {
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") && SameToken(strings.TrimSpace(given), token) {
		return true
	}
	c, err := r.Cookie(TokenCookie)
	return err == nil && SameToken(c.Value, SessionOf(token))
}
