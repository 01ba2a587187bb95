// The first process of every pod of the one-machine cluster; needs the standard library and nothing else.
module tpujob.dev/localcluster/pause

go 1.26.0
