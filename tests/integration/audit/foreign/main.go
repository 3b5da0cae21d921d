// Verify full receipts, and consistency proofs, with code of others: Go's checksum database and certificate transparency.
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

	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"golang.org/x/mod/sumdb/tlog"
)

type Receipt struct {
	Index, Size      int64
	Data, Leaf, Root string
	Proof            []string
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

func main() {
	var given struct {
		Receipts    []Receipt
		Consistency []Consistency
	}
	check(json.NewDecoder(os.Stdin).Decode(&given), "standard input")
	for _, one := range given.Receipts {
		record := tlog.RecordHash([]byte(one.Data))
		if !bytes.Equal(record[:], raw(one.Leaf)) {
			check(fmt.Errorf("it is not the hash of its data"), "leaf %d", one.Index)
		}
		var hashes tlog.RecordProof
		var others [][]byte
		for _, text := range one.Proof {
			hashes, others = append(hashes, hash(text)), append(others, raw(text))
		}
		check(tlog.CheckRecord(hashes, one.Size, hash(one.Root), one.Index, record), "sumdb: leaf %d of %d", one.Index, one.Size)
		err := proof.VerifyInclusion(rfc6962.DefaultHasher, uint64(one.Index), uint64(one.Size), record[:], others, raw(one.Root))
		check(err, "merkle: leaf %d of %d", one.Index, one.Size)
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
