package metadata

import "iter"

// Map is an ordered map that never changes: Set and Delete return another map
// that shares all but a path of nodes with the old one (an AVL tree). It keeps
// an Image immutable without a copy of 10,000 partitions for every batch. The
// zero value is not usable; newMap gives an empty one.
type Map[K, V any] struct {
	root    *mapNode[K, V]
	size    int
	compare func(a, b K) int
}

type mapNode[K, V any] struct {
	key         K
	value       V
	left, right *mapNode[K, V]
	height      int8
}

func newMap[K, V any](compare func(a, b K) int) Map[K, V] { return Map[K, V]{compare: compare} }

// Len is how many keys m has.
func (m Map[K, V]) Len() int { return m.size }

// Get returns the value of key and whether there is one.
func (m Map[K, V]) Get(key K) (v V, ok bool) {
	for n := m.root; n != nil; {
		switch c := m.compare(key, n.key); {
		case c == 0:
			return n.value, true
		case c < 0:
			n = n.left
		default:
			n = n.right
		}
	}
	return v, false
}

// Set returns m with key set to value.
func (m Map[K, V]) Set(key K, value V) Map[K, V] {
	added := false
	m.root = m.set(m.root, key, value, &added)
	if added {
		m.size++
	}
	return m
}

// Delete returns m without key.
func (m Map[K, V]) Delete(key K) Map[K, V] {
	if _, ok := m.Get(key); !ok {
		return m
	}
	m.root = m.delete(m.root, key)
	m.size--
	return m
}

// All walks over m in the order of its keys.
func (m Map[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) { m.root.walk(yield) }
}

// From walks over the keys of m at or after start.
func (m Map[K, V]) From(start K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) { m.walkFrom(m.root, start, yield) }
}

func (m Map[K, V]) walkFrom(n *mapNode[K, V], start K, yield func(K, V) bool) bool {
	if n == nil {
		return true
	}
	if m.compare(n.key, start) < 0 {
		return m.walkFrom(n.right, start, yield)
	}
	return m.walkFrom(n.left, start, yield) && yield(n.key, n.value) && n.right.walk(yield)
}

func (n *mapNode[K, V]) walk(yield func(K, V) bool) bool {
	return n == nil || n.left.walk(yield) && yield(n.key, n.value) && n.right.walk(yield)
}

func (m Map[K, V]) set(n *mapNode[K, V], key K, value V, added *bool) *mapNode[K, V] {
	if n == nil {
		*added = true
		return &mapNode[K, V]{key: key, value: value, height: 1}
	}
	next := *n
	switch c := m.compare(key, n.key); {
	case c == 0:
		next.value = value
		return &next
	case c < 0:
		next.left = m.set(n.left, key, value, added)
	default:
		next.right = m.set(n.right, key, value, added)
	}
	return next.balanced()
}

// delete removes key, which is present.
func (m Map[K, V]) delete(n *mapNode[K, V], key K) *mapNode[K, V] {
	next := *n
	switch c := m.compare(key, n.key); {
	case c < 0:
		next.left = m.delete(n.left, key)
	case c > 0:
		next.right = m.delete(n.right, key)
	case n.left == nil:
		return n.right
	case n.right == nil:
		return n.left
	default:
		first := n.right
		for first.left != nil {
			first = first.left
		}
		next.key, next.value = first.key, first.value
		next.right = m.delete(n.right, first.key)
	}
	return next.balanced()
}

func (n *mapNode[K, V]) depth() int8 {
	if n == nil {
		return 0
	}
	return n.height
}

// balanced returns n, which nobody else sees yet, rotated where one side has
// become two deeper than the other.
func (n mapNode[K, V]) balanced() *mapNode[K, V] {
	switch diff := n.left.depth() - n.right.depth(); {
	case diff > 1:
		left := *n.left
		if left.left.depth() < left.right.depth() {
			left = *left.rotatedLeft()
		}
		n.left = &left
		return n.rotatedRight()
	case diff < -1:
		right := *n.right
		if right.right.depth() < right.left.depth() {
			right = *right.rotatedRight()
		}
		n.right = &right
		return n.rotatedLeft()
	}
	n.height = 1 + max(n.left.depth(), n.right.depth())
	return &n
}

func (n mapNode[K, V]) rotatedLeft() *mapNode[K, V] {
	top := *n.right
	n.right = top.left
	n.height = 1 + max(n.left.depth(), n.right.depth())
	top.left = &n
	top.height = 1 + max(top.left.depth(), top.right.depth())
	return &top
}

func (n mapNode[K, V]) rotatedRight() *mapNode[K, V] {
	top := *n.left
	n.left = top.right
	n.height = 1 + max(n.left.depth(), n.right.depth())
	top.right = &n
	top.height = 1 + max(top.left.depth(), top.right.depth())
	return &top
}
