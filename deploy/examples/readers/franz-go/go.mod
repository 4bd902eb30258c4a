module kvlens.example/read-franz-go

go 1.26.0

require github.com/twmb/franz-go v1.22.3
