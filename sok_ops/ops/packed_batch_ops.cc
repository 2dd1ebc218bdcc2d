// Ops that take a group's ids from the host to a GPU in one copy. A pass over graphs adds them
// (sok_ops/kernels/pack_batches.cc); no program does.
#include "sok_ops/ops/group_lookup_signature.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace sok {
namespace {

namespace tf = ::tensorflow;
using tf::shape_inference::ScalarShape;
using tf::shape_inference::UnknownShape;

REGISTER_OP("SokPackBatch")
SOK_GROUP_LOOKUP_ATTRIBUTES.Attr("Tids: list({int32, int64, uint32}) >= 1") SOK_GROUP_LOOKUP_TENSORS
    .Output("batch: variant")
    .SetIsStateful()
    .SetShapeFn(ScalarShape)
    .Doc(
        R"(Copies the tensors of lookups into one block of host memory that a GPU copies by itself. Indices that are in
order, and row splits, become row splits of 32 bits. Inputs and attributes are those of a SokGroupLookup with
these lookups.
batch: an input of the ops below. Holds the error if there is no memory.)");

REGISTER_OP("SokPackedGroupLookup")
SOK_PACKED_GROUP_LOOKUP_SIGNATURE.Output("outputs: num_outputs * float")
    .Output("plan: variant")
    .SetIsStateful()
    .SetShapeFn(UnknownShape)
    .Doc(R"(SokGroupLookup, for GPUs.
packed: which lookups' ids, bags and weights are in `batch`.)");

REGISTER_OP("SokPackedGroupLookupAhead")
SOK_PACKED_GROUP_LOOKUP_SIGNATURE.Output("ahead: variant")
    .SetIsStateful()
    .SetShapeFn(UnknownShape)
    .Doc(R"(SokGroupLookupAhead, for GPUs. Inputs are those of SokPackedGroupLookup.)");

REGISTER_OP("SokPackedGroupRoute")
SOK_PACKED_GROUP_LOOKUP_SIGNATURE.Attr("exchange: list({'rows', 'sums'}) >= 1")
    .Output("words: int64")
    .Output("splits: int32")
    .Output("plan: variant")
    .SetIsStateful()
    .SetShapeFn(UnknownShape)
    .Doc(R"(SokGroupRoute, for GPUs. Inputs are those of SokPackedGroupLookup.)");

}  // namespace
}  // namespace sok
