module lab/echo

go 1.22
