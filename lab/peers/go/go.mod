module lab/tools/echo

go 1.22
