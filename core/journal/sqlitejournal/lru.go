package sqlitejournal

// lru keeps the most recently used values whose costs fit a limit. It is not
// safe for concurrent use.
type lru[K comparable, V any] struct {
	limit, used int
	nodes       map[K]*lruNode[K, V]
	root        lruNode[K, V] // root.next is the most recently used
}

type lruNode[K comparable, V any] struct {
	prev, next *lruNode[K, V]
	key        K
	value      V
	cost       int
}

func newLRU[K comparable, V any](limit int) *lru[K, V] {
	c := &lru[K, V]{limit: limit}
	c.clear()
	return c
}

func (c *lru[K, V]) clear() {
	c.nodes = make(map[K]*lruNode[K, V])
	c.root.prev, c.root.next = &c.root, &c.root
	c.used = 0
}

func (c *lru[K, V]) get(key K) (value V, found bool) {
	n := c.nodes[key]
	if n == nil {
		return value, false
	}
	c.unlink(n)
	c.pushFront(n)
	return n.value, true
}

// put stores a value and drops what no longer fits, possibly the value itself.
func (c *lru[K, V]) put(key K, value V, cost int) {
	n := c.nodes[key]
	if n == nil {
		n = &lruNode[K, V]{key: key}
		c.nodes[key] = n
	} else {
		c.unlink(n)
		c.used -= n.cost
	}
	n.value, n.cost = value, cost
	c.used += cost
	c.pushFront(n)
	for c.used > c.limit {
		last := c.root.prev
		c.unlink(last)
		c.used -= last.cost
		delete(c.nodes, last.key)
	}
}

func (c *lru[K, V]) unlink(n *lruNode[K, V]) {
	n.prev.next, n.next.prev = n.next, n.prev
}

func (c *lru[K, V]) pushFront(n *lruNode[K, V]) {
	n.prev, n.next = &c.root, c.root.next
	n.prev.next, n.next.prev = n, n
}
