package index

// Cool closes the file of an index that is not written to, as if it had not been
// used yet; the next use opens it again. What was learnt of it, its fence, is
// kept, and so is the duty to flush what is not durable yet: the kernel reports a
// failed write-back to the next sync through any descriptor. An index that is
// mapped, or was rebuilt in memory, stays as it is. It may run beside readers; not beside the writer.
func (x *mapped) Cool() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	v := x.cur.Load()
	if v == nil || x.m != nil || v.heap {
		return nil
	}
	x.cur.Store(nil)
	v.release()
	<-v.gone
	x.kept, x.keptCount = v.fence.Load(), v.count.Load()
	return v.file.Close()
}

// Cool closes the file, if it is open; the next use opens it again.
func (x *TxnIndex) Cool() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.file == nil {
		return nil
	}
	err := x.file.Close()
	x.file, x.opened = nil, false
	return err
}
