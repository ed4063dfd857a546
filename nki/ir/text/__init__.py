"""Text form of the tile IR, as `print_kernel` writes it. The tests read it again: no two kernels
have one text.

kernel    = 'kernel' NAME 'target=' NAME  section...
section   = symbol* guard* tensor* input* result* core* location*
symbol    = 'symbol' NAME 'min=' INT ['max=' INT] 'multiple_of=' INT
guard     = 'guard' FORM STRING ['loc=' INT]
tensor    = 'tensor' %tN STRING ':' MEMORY DTYPE '[' FORM, ... ']' ['role=' NAME]
            ['core=' INT] ['address=(' INT, INT ')'] ['within=' %tN ['at=' FORM]]
            ['data=' BASE64] ['loc=' INT]
input     = 'input' %tN STRING
result    = 'result' %tN
core      = 'core' INT ':'  register*  place*  block
register  = 'register' %rN STRING ['from' FORM] ['to' FORM] ['loc=' INT]
place     = 'place' %tN 'at=' FORM       where registers say at which byte a tensor lies in another
block     = node, ...                                           (indented by two more spaces)
node      = op | loop | while
op        = ['!' INT ':'] OPERATION field=VALUE ... ['name=' STRING] ['after=(' !INT, ... ')']
            ['loc=' INT]                          (a field that has its default is left out)
loop      = 'loop' %rN '=' FORM 'to' FORM 'step' INT ['unroll'] ['loc=' INT] ':'  block
while     = 'while' %rN ['loc=' INT] ':'  block
location  = 'location' INT STRING(file) INT(line) INT(column) INT(end column)
            STRING(function) STRING(text)

VALUE     = ACCESS | NUMBER | FORM | PREDICATE | %rN | NAME | 'none' | 'true' | 'false'
          | '(' FORM, ... ')' | '((' FORM, FORM '), ...)'       (as the field's kind says)
ACCESS    = %tN '[' FORM, ... ':' FORM, ... '@' FORM ']' [':' DTYPE] ['rows(' ROWS ')']
            ['inside(' FORM ',' FORM ')']
            shape : strides @ offset, in elements; DTYPE where it is not the tensor's; limits
ROWS      = ACCESS '*' FORM '<' FORM              vector_offset * vector_stride < vector_bound
FORM      = an index form as `isa.affine` writes it; in parentheses where it has blanks and
            no bracket ends it
PREDICATE = '[' condition as `isa.affine` writes it ']'

kernel scale target=trn2
tensor %t0 "a": shared_hbm float32[128, 512] role=input
tensor %t1 "out": shared_hbm float32[128, 512] role=output
tensor %t2 "tile": sbuf float32[128, 512] core=0
input %t0 "a"
result %t1
core 0:
  storage_begin dst=%t2[128, 512 : 512, 1 @ 0]
  dma_copy dst=%t2[128, 512 : 512, 1 @ 0] src=%t0[128, 512 : 512, 1 @ 0] engine=sync
"""

from nki.ir.text.printer import print_kernel

__all__ = ["print_kernel"]
