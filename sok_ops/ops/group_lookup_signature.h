#ifndef SOK_SOK_OPS_OPS_GROUP_LOOKUP_SIGNATURE_H_
#define SOK_SOK_OPS_OPS_GROUP_LOOKUP_SIGNATURE_H_

// The attributes and inputs of ops that take a group of lookups. They follow REGISTER_OP. The doc of
// SokGroupLookup describes them.
#define SOK_GROUP_LOOKUP_ATTRIBUTES                                   \
  .Attr("num_tables: int >= 1")                                       \
      .Attr("num_outputs: int >= 1")                                  \
      .Attr("num_bags: int >= 0")                                     \
      .Attr("num_sparse: int >= 0")                                   \
      .Attr("num_weights: int >= 0")                                  \
      .Attr("dims: list(int) >= 1")                                   \
      .Attr("table_of: list(int) >= 1")                               \
      .Attr("layouts: list({'sparse', 'ragged', 'dense'}) >= 1")      \
      .Attr("combiners: list({'sum', 'mean', 'sqrtn', 'none'}) >= 1") \
      .Attr("weighted: list(bool) >= 1")                              \
      .Attr("slots: list(int) >= 1")                                  \
      .Attr("beside: list(int) = []")                                 \
      .Attr("positive_weights_only: list(bool) = []")                 \
      .Attr("placed: list(bool) = []")

#define SOK_GROUP_LOOKUP_TENSORS                 \
  .Input("ids: Tids")                            \
      .Input("bags: num_bags * int64")           \
      .Input("dense_shapes: num_sparse * int64") \
      .Input("weights: num_weights * float")

#define SOK_GROUP_LOOKUP_SIGNATURE                                            \
  SOK_GROUP_LOOKUP_ATTRIBUTES.Attr("Tids: list({int32, int64, uint32}) >= 1") \
      .Input("handles: num_tables * resource") SOK_GROUP_LOOKUP_TENSORS.Input("training: bool")

// An op that takes the tensors of some lookups from a SokPackBatch. The others, and all dense shapes, are
// inputs.
#define SOK_PACKED_GROUP_LOOKUP_SIGNATURE                                     \
  SOK_GROUP_LOOKUP_ATTRIBUTES.Attr("Tids: list({int32, int64, uint32}) >= 0") \
      .Attr("packed: list(bool) >= 1")                                        \
      .Input("handles: num_tables * resource")                                \
      .Input("batch: variant") SOK_GROUP_LOOKUP_TENSORS.Input("training: bool")

#endif  // SOK_SOK_OPS_OPS_GROUP_LOOKUP_SIGNATURE_H_
