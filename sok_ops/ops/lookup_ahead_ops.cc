// A group lookup in two ops, the first of which may run ahead of its step, and ops that hold a batch until
// that step.
#include "sok_ops/ops/group_lookup_signature.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace sok {
namespace {

namespace tf = ::tensorflow;
using tf::shape_inference::InferenceContext;
using tf::shape_inference::ScalarShape;
using tf::shape_inference::ShapeHandle;
using tf::shape_inference::UnknownShape;

REGISTER_OP("SokGroupLookupAhead")
SOK_GROUP_LOOKUP_SIGNATURE.Output("ahead: variant")
    .SetIsStateful()
    .SetShapeFn(ScalarShape)
    .Doc(R"(The part of SokGroupLookup that needs no rows: checks the ids and merges duplicates. Inputs and
attributes are those of SokGroupLookup. Does not read the tables, so steps may change them until SokGroupLookupRead
runs.
ahead: the input of SokGroupLookupRead. If the ids are wrong it holds the error, and SokGroupLookupRead raises it.)");

REGISTER_OP("SokGroupLookupRead")
    .Attr("num_tables: int >= 1")
    .Attr("num_outputs: int >= 1")
    .Attr("num_lookups: int >= 1")
    .Attr("dims: list(int) >= 1")
    .Input("handles: num_tables * resource")
    .Input("ahead: variant")
    .Output("outputs: num_outputs * float")
    .Output("plan: variant")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      for (int i = 0; i + 1 < c->num_outputs(); ++i) c->set_output(i, c->UnknownShape());
      c->set_output(c->num_outputs() - 1, c->Scalar());
      return tf::Status();
    })
    .Doc(R"(The rest of SokGroupLookup: finds or inserts rows, and writes the outputs.
handles: the tables of the SokGroupLookupAhead, in the same order. ahead: its output, which can be read only once.
outputs, plan: those of SokGroupLookup.)");

REGISTER_OP("SokHoldBatch")
    .Attr("T: list(type) >= 1")
    .Attr("name_of_batch: string")
    .Attr("begins: bool = false")
    .Input("values: T")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext*) { return tf::Status(); })
    .Doc(
        R"(Stores tensors for the SokTakeBatch of the same name, in a later run of the session. Stores one batch at
a time: FailedPrecondition if the last one was not taken.
begins: whether the op's first run in a session replaces a batch that an earlier session of the process left.)");

REGISTER_OP("SokTakeBatch")
    .Attr("T: list(type) >= 1")
    .Attr("name_of_batch: string")
    .Input("has_next: bool")
    .Output("values: T")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle unused;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 0, &unused));
      for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, c->UnknownShape());
      return tf::Status();
    })
    .Doc(
        R"(Returns the batch that SokHoldBatch stored, and removes it. If none is stored: OutOfRange if has_next is
false, else FailedPrecondition.
has_next: [] whether the input has another batch.)");

REGISTER_OP("SokKeepWords")
    .Input("words: int64")
    .Output("kept: variant")
    .SetShapeFn(ScalarShape)
    .Doc(R"(Lets a batch hold words that stay in the memory of the op's device.
kept: refers to the words.)");

REGISTER_OP("SokKeptWords")
    .Input("kept: variant")
    .Output("words: int64")
    .SetShapeFn(UnknownShape)
    .Doc(R"(The words of a SokKeepWords on the same device.)");

// Ops that take a group's ids from the host to a GPU in one copy. A pass over graphs adds them
// (sok_ops/kernels/pack_batches.cc); no program does.

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
