package engine

// StoreUse is how many places the store of a started run has, and how many are
// taken.
func (h *RunHandle) StoreUse() (capacity, held int) { return h.store.capacity, h.store.held() }
