// Verify full receipts up to a signed note, and consistency proofs, with code of others: Go's checksum database and
// certificate transparency.
//
// Reads one JSON object from standard input and says on standard output how much it has verified; the first proof that is no
// proof ends it with status 1.
package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"

	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

type Receipt struct {
	Log              []any
	Index, Size      int64
	Data, Leaf, Root string
	Proof            []string
	Head             struct {
		Index int64
		Data  string
		Proof []string
	}
	Checkpoint string
}

type Head struct {
	Partitions []struct {
		LogId     string `json:"log_id"`
		Topic     string
		Partition float64
		Size      int64
		Root      string
	}
}

type Consistency struct {
	From, To     int64
	Older, Newer string
	Proof        []string
}

func check(err error, what string, args ...any) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", fmt.Sprintf(what, args...), err)
		os.Exit(1)
	}
}

func raw(text string) []byte {
	data, err := hex.DecodeString(text)
	check(err, "%q is no hash", text)
	return data
}

func hash(text string) (h tlog.Hash) {
	if copy(h[:], raw(text)) != tlog.HashSize {
		check(fmt.Errorf("it is too short"), "%q", text)
	}
	return h
}

// signed opens a signed note, and returns the size and the root that it says.
func signed(text string, keys note.Verifiers) (size int64, root tlog.Hash) {
	opened, err := note.Open([]byte(text), keys)
	check(err, "the checkpoint")
	lines := strings.Split(opened.Text, "\n")
	size, err = strconv.ParseInt(lines[1], 10, 64)
	check(err, "the checkpoint's size")
	root, err = tlog.ParseHash(lines[2])
	check(err, "the checkpoint's root")
	return size, root
}

func included(data []byte, index int64, nodes []string, size int64, root tlog.Hash) {
	record := tlog.RecordHash(data)
	var hashes tlog.RecordProof
	var others [][]byte
	for _, text := range nodes {
		hashes, others = append(hashes, hash(text)), append(others, raw(text))
	}
	check(tlog.CheckRecord(hashes, size, root, index, record), "sumdb: leaf %d of %d", index, size)
	err := proof.VerifyInclusion(rfc6962.DefaultHasher, uint64(index), uint64(size), record[:], others, root[:])
	check(err, "merkle: leaf %d of %d", index, size)
}

func main() {
	var given struct {
		Keys        []string
		Receipts    []Receipt
		Consistency []Consistency
	}
	check(json.NewDecoder(os.Stdin).Decode(&given), "standard input")
	var verifiers []note.Verifier
	for _, text := range given.Keys {
		verifier, err := note.NewVerifier(text)
		check(err, "%s", text)
		verifiers = append(verifiers, verifier)
	}
	keys := note.VerifierList(verifiers...)
	for _, one := range given.Receipts {
		size, root := signed(one.Checkpoint, keys)
		included([]byte(one.Head.Data), one.Head.Index, one.Head.Proof, size, root)
		var head Head
		check(json.Unmarshal([]byte(one.Head.Data), &head), "the head")
		found := false
		for _, log := range head.Partitions {
			place := []any{log.LogId, log.Topic, log.Partition}
			found = found || reflect.DeepEqual(place, one.Log) && log.Size == one.Size && log.Root == one.Root
		}
		if record := tlog.RecordHash([]byte(one.Data)); !found || !bytes.Equal(record[:], raw(one.Leaf)) {
			check(fmt.Errorf("the head has another one, or it is not the hash of its data"), "leaf %d", one.Index)
		}
		included([]byte(one.Data), one.Index, one.Proof, one.Size, hash(one.Root))
	}
	for _, one := range given.Consistency {
		var hashes tlog.TreeProof
		var others [][]byte
		for _, text := range one.Proof {
			hashes, others = append(hashes, hash(text)), append(others, raw(text))
		}
		check(tlog.CheckTree(hashes, one.To, hash(one.Newer), one.From, hash(one.Older)), "sumdb: %d to %d", one.From, one.To)
		err := proof.VerifyConsistency(rfc6962.DefaultHasher, uint64(one.From), uint64(one.To), others, raw(one.Older), raw(one.Newer))
		check(err, "merkle: %d to %d", one.From, one.To)
	}
	fmt.Printf("%d receipts, %d consistency proofs\n", len(given.Receipts), len(given.Consistency))
}
