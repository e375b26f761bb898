// Package explore runs the real Admitter, Attempter and Settler under every
// schedule that departs from the usual one in few places. It has tests only;
// docs/explorer.md says what they cover.
package explore
