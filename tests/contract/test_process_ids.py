from hypothesis import given
from hypothesis import strategies as st

from tpujob_contract import num_processes, process_id


@given(st.integers(1, 40), st.integers(1, 64))
def test_ids_are_a_permutation(slices, hosts_per_slice):
    ids = [
        process_id(slice_index=s, host_index=h, hosts_per_slice=hosts_per_slice)
        for s in range(slices)
        for h in range(hosts_per_slice)
    ]
    assert sorted(ids) == list(range(num_processes(slices=slices, hosts_per_slice=hosts_per_slice)))
    # Slice by slice, as the TPU runtime counts.
    assert ids == sorted(ids)
