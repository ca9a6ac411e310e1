package replica

import (
	"errors"
	"log/slog"
	"runtime"
	"sync"

	"github.com/varvelog/varve/internal/config"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/logdir"
	"github.com/varvelog/varve/internal/metadata"
)

// Options say what a Manager works with. Dirs and NodeID are needed.
type Options struct {
	Dirs   *logdir.Manager
	NodeID kafka.BrokerID
	// Broker is the configuration that topics without settings of their own
	// follow, as it is now. Nil: Kafka's defaults.
	Broker func() *config.Broker
	Logger *slog.Logger // nil: nothing is logged
}

// Manager knows the partitions that have a replica on this broker, and makes
// them follow the metadata. Lookups take no lock and allocate nothing.
type Manager struct {
	o     Options
	table *table

	mu      sync.Mutex         // one change of the metadata at a time
	failing map[replicaID]bool // partitions to try again; guarded by mu
	failed  chan struct{}      // capacity 1: there is one more of them
}

// replicaID names a partition of one life of its topic.
type replicaID struct {
	topic     kafka.TopicID
	partition int32
}

// NewManager makes a manager without partitions.
func NewManager(o Options) *Manager {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Broker == nil {
		o.Broker = func() *config.Broker { return nil }
	}
	return &Manager{o: o, table: newTable(), failing: map[replicaID]bool{}, failed: make(chan struct{}, 1)}
}

// Topic finds a topic by name; nil when this broker has no replica of it.
func (m *Manager) Topic(name string) *Topic { return m.table.byName(name) }

// TopicBytes is Topic for a name that is still in a request.
func (m *Manager) TopicBytes(name []byte) *Topic { return m.table.byNameBytes(name) }

// TopicByID finds a topic by id; nil when this broker has no replica of it.
func (m *Manager) TopicByID(id kafka.TopicID) *Topic { return m.table.byID(id) }

// Get finds a partition by name; nil when this broker has no replica of it.
func (m *Manager) Get(tp kafka.TopicPartition) *Partition {
	if t := m.table.byName(tp.Topic); t != nil {
		return t.Partition(tp.Partition)
	}
	return nil
}

// GetByID finds a partition by topic id; nil when this broker has no replica of it.
func (m *Manager) GetByID(id kafka.TopicID, partition int32) *Partition {
	if t := m.table.byID(id); t != nil {
		return t.Partition(partition)
	}
	return nil
}

// Partitions lists all partitions, in no order.
func (m *Manager) Partitions() []*Partition {
	var list []*Partition
	for _, t := range m.table.all() {
		for _, p := range t.Partitions() {
			if p != nil {
				list = append(list, p)
			}
		}
	}
	return list
}

// ApplyImage makes the partitions what a whole image says: at the start, when
// the logs are loaded, and after a metadata snapshot.
func (m *Manager) ApplyImage(image *metadata.Image) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var gone []*Topic
	for _, t := range m.table.all() {
		if now := image.TopicByID(t.ID); now == nil || now.Name != t.Name {
			gone = append(gone, t)
		}
	}
	errs := []error{m.deleteLocked(gone)}
	var changes []change
	for name, topic := range image.Topics.All() {
		changes = append(changes, m.changesOf(name, topic)...)
	}
	return errors.Join(append(errs, m.changeLocked(image, changes))...)
}

// Apply makes the partitions follow one committed change: topics deleted and
// created, partitions added, leaders and settings changed. An error says which
// partitions did not, and was logged; they answer with it, the others are served.
func (m *Manager) Apply(image *metadata.Image, delta *metadata.Delta) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var gone []*Topic
	var changes []change
	for _, t := range delta.Topics() {
		if t.New == nil {
			if topic := m.table.byID(t.ID); topic != nil {
				gone = append(gone, topic)
			}
			continue
		}
		for _, p := range t.Partitions() {
			if p.New != nil {
				changes = append(changes, change{t.New.Name, t.New.ID, p.Partition, p.New})
			}
		}
	}
	err := m.deleteLocked(gone)
	err = errors.Join(err, m.changeLocked(image, m.withFailing(image, changes)))
	for _, r := range delta.Configs() {
		m.configChanged(image, r)
	}
	return err
}

// Failed gets a token when a partition could not be opened or made for a reason
// that may pass. Whoever takes it calls Retry until nothing is left.
func (m *Manager) Failed() <-chan struct{} { return m.failed }

// Retry tries again what failed for want of room, descriptors or memory. It
// reports whether that changed anything, and how many partitions still fail. The
// image is the one that was applied last.
func (m *Manager) Retry(image *metadata.Image) (changed bool, left int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := len(m.failing)
	if before == 0 {
		return false, 0
	}
	_ = m.changeLocked(image, m.withFailing(image, nil)) // an error was logged when it was new
	return len(m.failing) < before, len(m.failing)
}

// RefreshConfigs applies the topics' settings anew, after the broker's
// configuration has changed.
func (m *Manager) RefreshConfigs(image *metadata.Image) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.table.all() {
		m.configure(image, t)
	}
}

// Offline wakes whoever waits on a directory that went offline; the node calls
// it from logdir's OnOffline.
func (m *Manager) Offline(o logdir.Offline) {
	for _, tp := range o.Partitions {
		if p := m.Get(tp); p != nil {
			p.committed() // nothing more will be: a coordinator answers its waiters
			p.WakeAll()
		}
	}
}

// forEach runs f for the indexes below n, several at a time: most of the work
// is waiting for the disk.
func forEach(n int, f func(i int)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, 4*runtime.GOMAXPROCS(0))
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
	wg.Wait()
}
