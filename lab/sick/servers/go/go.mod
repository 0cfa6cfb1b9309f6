module sick

go 1.22
