package store

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"reflect"

	"go.etcd.io/bbolt"

	"github.com/clairun/clai-sandbox/grants"
)

// The buckets. Values are JSON behind a checksum.
var (
	metaBucket     = []byte("meta")     // version: of the schema; totals
	grantsBucket   = []byte("grants")   // agent → grant's id → grants.Grant
	requestsBucket = []byte("requests") // sequence number → grants.Record
	auditBucket    = []byte("audit")    // position → auditPosition
	doneBucket     = []byte("done")     // sequence number → grants.Done; made when there is one

	versionKey  = []byte("version")
	positionKey = []byte("position")
	totalsKey   = []byte("totals")
)

// totals say how much there has to be.
type totals struct {
	Grants  int `json:"grants"`
	Records int `json:"records"`
}

// migrations take the schema from the version of their index to the next one, each in one
// transaction. To change the schema, add one; the database then never goes back to an older
// program.
var migrations = []func(*bbolt.Tx) error{
	func(tx *bbolt.Tx) error { // 0: an empty database
		for _, name := range [][]byte{grantsBucket, requestsBucket, auditBucket} {
			if _, err := tx.CreateBucket(name); err != nil {
				return err
			}
		}
		return put(tx.Bucket(metaBucket), metaBucket, totalsKey, totals{})
	},
}

// NewerError means that a later version of the program wrote the database.
type NewerError struct{ Version, Known int }

func (e *NewerError) Error() string {
	return fmt.Sprintf("it has version %d of the schema, and this program knows %d", e.Version, e.Known)
}

// migrate brings the schema up to date.
func migrate(db *bbolt.DB, steps []func(*bbolt.Tx) error) error {
	version, err := versionOf(db)
	if err != nil {
		return err
	}
	if version > len(steps) {
		return &NewerError{version, len(steps)}
	}
	for ; version < len(steps); version++ {
		err := db.Update(func(tx *bbolt.Tx) error {
			meta, err := tx.CreateBucketIfNotExists(metaBucket)
			if err != nil {
				return err
			}
			if err := steps[version](tx); err != nil {
				return err
			}
			return meta.Put(versionKey, binary.BigEndian.AppendUint32(nil, uint32(version+1)))
		})
		if err != nil {
			return fmt.Errorf("migrate from version %d: %w", version, err)
		}
	}
	return nil
}

func versionOf(db *bbolt.DB) (version int, err error) {
	err = db.View(func(tx *bbolt.Tx) error {
		meta := tx.Bucket(metaBucket)
		if meta == nil {
			if key, _ := tx.Cursor().First(); key != nil {
				return &DamagedError{errors.New("it is a database of something else")}
			}
			return nil
		}
		value := meta.Get(versionKey)
		if len(value) != 4 {
			return &DamagedError{errors.New("it does not say which version of the schema it has")}
		}
		version = int(binary.BigEndian.Uint32(value))
		return nil
	})
	return version, err
}

// castagnoli is made when it is first needed: package hash/crc32 keeps it.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// put stores a value behind its checksum, which covers the place as well: a value that a damaged
// page shows under another key is found out.
func put(bucket *bbolt.Bucket, place, key []byte, value any) error {
	text, err := json.Marshal(value)
	if err == nil { // what could not be read again would count as damage, and take everything else with it
		err = json.Unmarshal(text, reflect.New(reflect.TypeOf(value)).Interface())
	}
	if err != nil {
		return err
	}
	return bucket.Put(key, append(binary.BigEndian.AppendUint32(nil, sum(place, key, text)), text...))
}

func decode(place, key, value []byte, into any) error {
	if len(value) < 4 || binary.BigEndian.Uint32(value) != sum(place, key, value[4:]) {
		return &DamagedError{fmt.Errorf("the checksum of %s/%x is another", place, key)}
	}
	if err := json.Unmarshal(value[4:], into); err != nil {
		return &DamagedError{fmt.Errorf("%s/%x: %w", place, key, err)}
	}
	return nil
}

func sum(place, key, text []byte) uint32 {
	c := crc32.Checksum(place, castagnoli())
	c = crc32.Update(c, castagnoli(), key)
	return crc32.Update(c, castagnoli(), text)
}

func readTotals(tx *bbolt.Tx) (totals, error) {
	var n totals
	return n, decode(metaBucket, totalsKey, tx.Bucket(metaBucket).Get(totalsKey), &n)
}

// checkTotals compares what there is with what there has to be.
func checkTotals(tx *bbolt.Tx) error {
	want, err := readTotals(tx)
	if err != nil {
		return err
	}
	var got totals
	count := func(bucket *bbolt.Bucket) (n int) {
		_ = bucket.ForEach(func(_, _ []byte) error { n++; return nil })
		return n
	}
	all := tx.Bucket(grantsBucket)
	_ = all.ForEachBucket(func(agent []byte) error { got.Grants += count(all.Bucket(agent)); return nil })
	got.Records = count(tx.Bucket(requestsBucket))
	if got != want {
		return &DamagedError{fmt.Errorf("it has %d grants and %d records, and must have %d and %d", got.Grants, got.Records, want.Grants, want.Records)}
	}
	return nil
}

func grantPlace(agent string) []byte { return []byte("grants/" + agent) }

// grantsOf are those of one agent, in the order of their ids.
func grantsOf(tx *bbolt.Tx, agent string) ([]grants.Grant, error) {
	bucket := tx.Bucket(grantsBucket).Bucket([]byte(agent))
	if bucket == nil {
		return nil, nil
	}
	var list []grants.Grant
	err := bucket.ForEach(func(key, value []byte) error {
		var g grants.Grant
		if err := decode(grantPlace(agent), key, value, &g); err != nil {
			return err
		}
		if g.Agent != agent || g.ID != string(key) {
			return &DamagedError{fmt.Errorf("grant %s stands in the place of another", key)}
		}
		list = append(list, g)
		return nil
	})
	return list, err
}
