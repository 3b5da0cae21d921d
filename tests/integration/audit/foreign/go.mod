module foreign

go 1.19

require (
	github.com/secure-systems-lab/go-securesystemslib v0.8.0
	github.com/transparency-dev/merkle v0.0.2
	golang.org/x/mod v0.12.0
)

require (
	golang.org/x/crypto v0.17.0 // indirect
	golang.org/x/sys v0.15.0 // indirect
)
