// The lookup of a group of features in tables that are sharded over ranks or over parameter servers, and its
// gradient. Each is several ops with exchanges of 64-bit words between them (see cc/cpu/sharded).
//
// Over ranks, every rank runs every op, and a Horovod exchange is between two of them. Over servers, a worker
// runs SokGroupRoute, SokGroupCombine, SokGroupReduce and SokGroupJoin with descriptions of the tables (see
// SokDescribeTable), each server the others, and the exchanges are edges of the graph.
//
// All ops but SokDivideGradients and SokGroupJoin are stateful: every rank runs all of them in every step, so
// graph optimizers must not fold, merge or prune any.
#include <vector>

#include "sok_ops/ops/group_lookup_signature.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace sok {
namespace {

namespace tf = ::tensorflow;
using tf::shape_inference::InferenceContext;

// Outputs 0 and 1 are words and splits for an exchange, the others scalars.
tf::Status OutgoingShapes(InferenceContext* c) {
  c->set_output(0, c->Vector(InferenceContext::kUnknownDim));
  c->set_output(1, c->Vector(InferenceContext::kUnknownDim));
  for (int i = 2; i < c->num_outputs(); ++i) c->set_output(i, c->Scalar());
  return tf::Status();
}

// For each table row references, then for each table gradients of rows.
tf::Status RowGradientShapes(InferenceContext* c) {
  std::vector<int64_t> dims;
  TF_RETURN_IF_ERROR(c->GetAttr("dims", &dims));
  const int num_tables = static_cast<int>(dims.size());
  if (c->num_outputs() != 2 * num_tables) {
    return tf::errors::InvalidArgument(dims.size(), " dims for ", c->num_outputs() / 2, " tables");
  }
  for (int t = 0; t < num_tables; ++t) {
    const auto rows = c->UnknownDim();
    c->set_output(t, c->Vector(rows));
    c->set_output(num_tables + t, c->Matrix(rows, dims[t]));
  }
  return tf::Status();
}

REGISTER_OP("SokGroupRoute")
SOK_GROUP_LOOKUP_SIGNATURE.Attr("exchange: list({'rows', 'sums'}) >= 1")
    .Output("words: int64")
    .Output("splits: int32")
    .Output("plan: variant")
    .SetIsStateful()
    .SetShapeFn(OutgoingShapes)
    .Doc(R"(Sorts a group's ids by the ranks that own them. Inputs and attributes are those of SokGroupLookup.
exchange: what the owners of each table send back: 'rows' of distinct ids, or 'sums' of bags.
words, splits: the messages to the other ranks, splits[r] words for rank r, followed by the message of this rank to
  itself. If this rank's inputs are wrong, the messages carry the error. With descriptions of tables, the messages
  to all of the tables' ranks.
plan: an input of SokGroupCombine and of the gradient.)");

REGISTER_OP("SokGroupServe")
    .Attr("num_tables: int >= 1")
    .Attr("num_received: int >= 1")
    .Attr("dims: list(int) >= 1")
    .Attr("exchange: list({'rows', 'sums'}) >= 1")
    .Input("handles: num_tables * resource")
    .Input("received: num_received * int64")
    .Input("received_splits: int32")
    .Input("sent: int64")
    .Input("sent_splits: int32")
    .Output("words: int64")
    .Output("splits: int32")
    .Output("served: variant")
    .SetIsStateful()
    .SetShapeFn(OutgoingShapes)
    .Doc(R"(Answers the requests of all ranks, or of one process that is none, for rows that this rank owns.
received, received_splits: the messages from SokGroupRoute on the other ranks, received_splits[r] words from rank r.
  Over servers a tensor for each message, and no splits.
sent, sent_splits: `words` and `splits` of SokGroupRoute on this rank. Over servers without elements.
words, splits: the answers, laid out as those of SokGroupRoute.
served: an input of SokGroupCombine, and of SokGroupSum or SokGroupSumApplyGradients.)");

REGISTER_OP("SokGroupCombine")
    .Attr("num_tables: int >= 1")
    .Attr("num_received: int >= 1")
    .Attr("num_outputs: int >= 1")
    .Attr("num_weights: int >= 0")
    .Attr("dims: list(int) >= 1")
    .Attr("weighted: list(bool) >= 1")
    .Attr("num_served: int >= 0")
    .Attr("exchange_name: string")
    .Input("handles: num_tables * resource")
    .Input("plan: variant")
    .Input("received: num_received * int64")
    .Input("received_splits: int32")
    .Input("sent: int64")
    .Input("sent_splits: int32")
    .Input("served: num_served * variant")
    .Input("weights: num_weights * float")
    .Output("outputs: num_outputs * float")
    .SetIsStateful()
    .SetShapeFn(tf::shape_inference::UnknownShape)
    .Doc(
        R"(Computes a group's outputs from the owners' answers. If any rank had an error, fails on every rank.
plan: of SokGroupRoute on this rank.
received, received_splits: the messages from SokGroupServe on the other ranks, as for SokGroupServe.
sent, sent_splits: `words` and `splits` of SokGroupServe on this rank.
served: of SokGroupServe on this rank; over servers none. Only the gradient uses served, weights and exchange_name.)");

REGISTER_OP("SokGroupReduce")
    .Attr("num_tables: int >= 1")
    .Attr("num_received: int >= 1")
    .Attr("num_outputs: int >= 1")
    .Attr("num_weights: int >= 0")
    .Attr("dims: list(int) >= 1")
    .Attr("weighted: list(bool) >= 1")
    .Input("handles: num_tables * resource")
    .Input("plan: variant")
    .Input("received: num_received * int64")
    .Input("received_splits: int32")
    .Input("sent: int64")
    .Input("sent_splits: int32")
    .Input("gradients: num_outputs * float")
    .Output("words: int64")
    .Output("splits: int32")
    .Output("weight_gradients: num_weights * float")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      for (int i = 0; i < c->num_outputs(); ++i) {
        c->set_output(i, c->Vector(InferenceContext::kUnknownDim));
      }
      return tf::Status();
    })
    .Doc(
        R"(Sums the gradients of a sharded group's outputs into gradients of the rows that this rank requested.
handles, plan, received, received_splits, sent, sent_splits: as for SokGroupCombine.
words, splits: the messages to the rows' owners, laid out as those of SokGroupRoute.
weight_gradients: the gradient of each weighted lookup's weights.)");

REGISTER_OP("SokGroupSum")
    .Attr("num_tables: int >= 1")
    .Attr("num_received: int >= 1")
    .Attr("dims: list(int) >= 1")
    .Input("handles: num_tables * resource")
    .Input("served: variant")
    .Input("received: num_received * int64")
    .Input("received_splits: int32")
    .Input("sent: int64")
    .Input("sent_splits: int32")
    .Output("indices: num_tables * int64")
    .Output("values: num_tables * float")
    .SetIsStateful()
    .SetShapeFn(RowGradientShapes)
    .Doc(
        R"(The gradients of this rank's rows, summed over all ranks.
handles: the group's tables.
served: of SokGroupServe on this rank.
received, received_splits: the messages from SokGroupReduce on the other ranks.
sent, sent_splits: `words` and `splits` of SokGroupReduce on this rank.
indices, values: for each table, references to the distinct rows that training ranks looked up, and the sums of all
  ranks' gradients of these rows.)");

REGISTER_OP("SokGroupSumApplyGradients")
    .Attr("num_tables: int >= 1")
    .Attr("num_received: int >= 1")
    .Attr("num_trained: int >= 1")
    .Attr("dims: list(int) >= 1")
    .Attr("trained: list(int) >= 1")
    .Attr("divisor: int >= 1")
    .Attr("optimizer: string")
    .Input("handles: num_tables * resource")
    .Input("served: variant")
    .Input("received: num_received * int64")
    .Input("received_splits: int32")
    .Input("sent: int64")
    .Input("sent_splits: int32")
    .Input("hyper: num_trained * float")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      std::vector<int64_t> dims;
      int num_tables;
      int num_trained;
      TF_RETURN_IF_ERROR(c->GetAttr("dims", &dims));
      TF_RETURN_IF_ERROR(c->GetAttr("num_tables", &num_tables));
      TF_RETURN_IF_ERROR(c->GetAttr("num_trained", &num_trained));
      if (static_cast<int>(dims.size()) != num_tables) {
        return tf::errors::InvalidArgument("SokGroupSumApplyGradients: ", dims.size(), " dims for ",
                                           num_tables, " tables");
      }
      tf::shape_inference::ShapeHandle unused;
      for (int i = c->num_inputs() - num_trained; i < c->num_inputs(); ++i) {
        TF_RETURN_IF_ERROR(c->WithRank(c->input(i), 1, &unused));
      }
      return tf::Status();
    })
    .Doc(
        R"(SokGroupSum, SokDivideGradients and a SokApplyGradients of each trained table in one op: the same result,
bit for bit, without arrays of row gradients in memory.
handles, served, received, received_splits, sent, sent_splits: as for SokGroupSum.
divisor: the sums are divided by it.
trained: the positions of the tables that take a step, each once.
hyper: the optimizer's hyper-parameters for each trained table, in the order of cc/optimizers.)");

REGISTER_OP("SokGroupJoin")
    .Attr("num_tables: int >= 1")
    .Attr("num_parts: int >= 1")
    .Attr("dims: list(int) >= 1")
    .Input("plan: variant")
    .Input("part_indices: num_parts * int64")
    .Input("part_values: num_parts * float")
    .Output("indices: num_tables * int64")
    .Output("values: num_tables * float")
    .SetShapeFn(RowGradientShapes)
    .Doc(R"(Joins the gradients of the parts of tables on several servers.
plan: of the SokGroupRoute whose descriptions of tables have the gradients.
part_indices, part_values: the outputs of SokGroupSum on each server: first those of all tables on server 0.
indices, values: for each table those of all servers. The bits above the reference to a row are the server's number:
  see cc/table/record_layout.h.)");

REGISTER_OP("SokDivideGradients")
    .Attr("divisor: int >= 1")
    .Input("values: float")
    .Output("quotients: float")
    .SetShapeFn(tf::shape_inference::UnchangedShape)
    .Doc(
        R"(Divides gradients by `divisor`, the number of ranks, and rounds each quotient once. TensorFlow's division
may be replaced by a product with the rounded reciprocal, which rounds twice.)");

}  // namespace
}  // namespace sok
